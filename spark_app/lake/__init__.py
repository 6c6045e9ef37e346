"""A lake on a disk or in a bucket: `files` by key, the lease to write it, and the `delta` tables and manifests."""
