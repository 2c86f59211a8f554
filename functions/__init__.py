"""The edge: one thin module per Lambda function."""
