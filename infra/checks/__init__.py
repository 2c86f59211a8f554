"""What must hold of a stack, one module per question. A check yields what it finds wrong, in words."""
