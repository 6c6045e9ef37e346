"""The name of this process in manifests and events."""

import uuid

RUN_ID = uuid.uuid4().hex[:12]
