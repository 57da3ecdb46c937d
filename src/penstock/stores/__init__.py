"""Where sessions live: one protocol, one implementation in portable SQL, and a database behind it."""
