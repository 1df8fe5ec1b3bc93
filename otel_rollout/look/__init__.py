"""What people look with: pages, findings, trees and tables."""
