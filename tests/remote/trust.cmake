# Envelopes, rows and leases.
