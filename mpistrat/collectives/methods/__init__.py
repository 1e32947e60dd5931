"""The methods of the communicator that are collectives, with their documentation for users."""
