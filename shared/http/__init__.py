"""What the HTTP functions share: problem documents and the way in from API Gateway."""
