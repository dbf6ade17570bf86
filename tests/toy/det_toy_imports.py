"""Imports of the processes that train toy trials, for the fork server from which they start."""

import det_core.comm._ranks
import det_core.core._checkpoints._free_space
import det_core.core._event_file
import det_core.core.agent_channel
import det_core.launch._node
import det_core.launch._stuck_workers
import det_core.launch.backends
import det_core.launch.standalone
import det_core.plugins._events
import det_core.storage._delete
import det_core.storage._restore
import det_core.storage._save
import det_core.storage._selector
import det_core.storage.directory
import det_core.tracking.remote._agent_socket
import det_core.trial

det_core.plugins.plugin_registry()
