"""Leasehook: a webhook gateway on AWS Lambda and Postgres."""
