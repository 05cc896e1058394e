"""Whether passes are what they seem: tripwires over what agents did, an auditor blind to the outcome, a probe of what a model knew before."""
