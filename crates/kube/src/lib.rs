//! Jobs on Kubernetes: watches and acts for the decisions of `trainyard-core`.
