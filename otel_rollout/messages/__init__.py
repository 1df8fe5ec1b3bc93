"""Chat messages: their forms, templates and conversations."""
