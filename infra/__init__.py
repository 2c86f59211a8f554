"""Around the product: running it locally, the command line, stacks. Imported by neither `functions` nor `shared`."""
