"""What happened, for who looks on: logs, their validation and replay, telemetry."""
