"""Send requests to the API server: paths, credentials, connections, retries and errors."""
