"""Sessions in PostgreSQL: the pool, the leases, the log of one session, and all of them."""
