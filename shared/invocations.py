"""What a function was invoked with."""


def is_http(event: object) -> bool:
    """Whether an event came from a URL (API Gateway, a load balancer, a function URL) and not from who may invoke.

    Functions that are for schedules and operators refuse these: whoever finds a URL must not run them.
    """
    return isinstance(event, dict) and "requestContext" in event
