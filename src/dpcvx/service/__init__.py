"""The query service: an HTTP interface, its keys, and the web page."""
