//! An API server behind something that ends its TLS with a certificate of its own.

use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::bed::runtime;
use crate::certs::IssuedCertificate;
use crate::cluster::ControlPlane;

/// Starts one before a cluster's API server; it serves until the program ends. Gives its address.
///
/// # Errors
/// When no port is to be had.
pub fn start(cluster: &ControlPlane, certificate: &IssuedCertificate) -> Result<String> {
    let acceptor = TlsAcceptor::from(certificate.server_config(None)?);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(
        cluster.authority().as_bytes(),
    )?)?;
    let trusting = ClientConfig::builder().with_root_certificates(roots);
    let connector = TlsConnector::from(Arc::new(trusting.with_no_client_auth()));
    let port = cluster.port();
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("https://{}", listener.local_addr()?);
    runtime().spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else {
            return;
        };
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, connector) = (acceptor.clone(), connector.clone());
            tokio::spawn(async move {
                // A client that goes away is its own affair.
                let _ = forward(stream, &acceptor, &connector, port).await;
            });
        }
    });
    Ok(url)
}

async fn forward(
    client: TcpStream,
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
    port: u16,
) -> Result<()> {
    let mut client = acceptor.accept(client).await?;
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    let mut server = connector.connect(name, server).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
