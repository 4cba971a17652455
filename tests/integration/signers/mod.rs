//! Who signs break-glass credentials: the embedded signer against API servers with real TLS, and HyperShift's
//! operator on a management cluster.

mod fixtures;
mod kubernetes_csr;
mod local_ca;
mod revocation;
