// The process that does nothing: first in the node's process namespace and first in every pod.
module cluster/pause

go 1.24.0
