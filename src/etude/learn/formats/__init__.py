"""Number formats that hardware has and this machine may lack, by plain arithmetic."""
