"""One microVM for each sandbox, by the program firecracker, where KVM really works."""
