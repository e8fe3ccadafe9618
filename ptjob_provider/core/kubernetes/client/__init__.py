"""Requests to the API server: addresses, credentials, HTTP and its errors."""
