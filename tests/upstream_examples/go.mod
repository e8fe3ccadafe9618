// Pins the module whose example manifests tests/core/test_upstream_examples.py reads. There is no Go code here.
module upstream-examples

go 1.23

require github.com/kubeflow/training-operator v1.9.4
