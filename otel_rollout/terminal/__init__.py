"""What the commands and the demo print: trees and tables on a screen."""
