"""The mock of Ozone's storage container manager: it knows which blocks exist, and deletes blocks on command."""
