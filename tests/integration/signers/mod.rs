//! Who signs break-glass credentials: the embedded signer against API servers with real TLS, and HyperShift's
//! operator on a management cluster.

mod fixtures;
mod local_ca;
