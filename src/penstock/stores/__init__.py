"""The store of sessions: one implementation in portable SQL, over SQLite or PostgreSQL."""
