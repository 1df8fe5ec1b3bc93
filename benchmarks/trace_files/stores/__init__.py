"""One file per store; each is written span by span and answers the same four questions."""
