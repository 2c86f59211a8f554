"""The management API: one module per resource, each a router with its models."""
