"""Harbor directories that any harness can build and grade: with the installation as a Dockerfile and a grader that needs nothing else."""
