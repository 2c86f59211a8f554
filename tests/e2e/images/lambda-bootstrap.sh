#!/bin/sh
# The runtime emulator starts this as it starts AWS's: it runs the function's handler until it is killed.
export AWS_EXECUTION_ENV=AWS_Lambda_python3.13
export PYTHONPATH="$LAMBDA_TASK_ROOT:/opt/python"
cd "$LAMBDA_TASK_ROOT"
exec python3 -m awslambdaric "$_HANDLER"
