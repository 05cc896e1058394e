"""The ladder of limits: control groups where the system gives us some, rlimits and a watch everywhere."""
