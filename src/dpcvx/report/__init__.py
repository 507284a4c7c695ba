"""Pages and pictures of plans and releases."""
