"""Types of fields that several resources have, with constraints that OpenAPI can say."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from shared.rules import CONSUMER_PATTERN, MAX_NAME_LENGTH

STORABLE = r"^[^\x00]*$"
"""PostgreSQL's text holds no NUL."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH, pattern=STORABLE)]
ConsumerId = Annotated[str, StringConstraints(pattern=CONSUMER_PATTERN)]


class RequestModel(BaseModel):
    """A JSON body: only members that are known, and only of the JSON type that is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True)
