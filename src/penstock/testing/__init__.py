"""What Penstock is tested with, for those who build on it: strategies, writers and a contract for engines."""
