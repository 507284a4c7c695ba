"""HTML pages and plots of plans and releases."""
