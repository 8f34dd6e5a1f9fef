//! Libraries of others that compute an op on a GPU without Python.

pub mod cublaslt;
