"""Everything that is in Postgres, and the only importer of psycopg."""
