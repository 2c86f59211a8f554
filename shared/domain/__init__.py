"""Pure decisions. Imports the standard library only; `now` and randomness are arguments."""
