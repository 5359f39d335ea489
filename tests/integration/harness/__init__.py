"""What the integration tests share: the API without generated code, the daemon, the CLI."""
