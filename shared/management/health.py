"""Is it up, and does the database answer?"""

from fastapi import APIRouter

from shared.http import schemas
from shared.http.access import RuntimeOf

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process up?")
def healthz() -> dict[str, str]:
    """Answers without looking at anything else."""
    return {"status": "ok"}


@router.get(
    "/readyz", summary="Does the database answer?", responses=schemas.problem_responses(503)
)
def readyz(runtime: RuntimeOf) -> dict[str, str]:
    """Answers 503 while the database does not."""
    runtime.database.fetch("ping", {})
    return {"status": "ok"}
