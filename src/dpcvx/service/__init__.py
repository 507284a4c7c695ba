"""The query service: HTTP interface, API keys, client and web page."""
