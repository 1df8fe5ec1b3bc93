"""Pages, findings, trees and tables for people to look at."""
