//! TLS 1.3 between ed25519 keys: each end shows its public key as it is (RFC 7250), without certificates, and signs the handshake with its
//! secret key.

use std::sync::Arc;

use iroh::{PublicKey, SecretKey};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ResolvesClientCert, Resumption};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime, alg_id::ED25519,
};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::{CertifiedKey, Signer, SigningKey, public_key_to_spki};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureAlgorithm, SignatureScheme,
};

use crate::engine::purpose::Purpose;

/// The end that accepts: it asks for a key and accepts any. Whether the key is listed is decided after the handshake, when it is proven.
pub(super) fn server(key: &SecretKey) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Proof { expected: None, algorithms: algorithms() }))
        .with_cert_resolver(Arc::new(OwnKey::new(key)));
    config.alpn_protocols = Purpose::alpns();
    // No session is resumed.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The end that dials: TLS with this key, only to the owner of the expected key.
pub fn tls_client(key: &SecretKey, expected: PublicKey) -> Result<Arc<ClientConfig>, Error> {
    client(key, expected, Purpose::Link)
}

/// The same, for a purpose.
pub(super) fn client(
    key: &SecretKey,
    expected: PublicKey,
    purpose: Purpose,
) -> Result<Arc<ClientConfig>, Error> {
    let proof = Proof { expected: Some(expected), algorithms: algorithms() };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(proof))
        .with_client_cert_resolver(Arc::new(OwnKey::new(key)));
    config.alpn_protocols = vec![purpose.alpn().to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// The key that the other end of a connection has proven to have.
pub(super) fn key_of(certificates: Option<&[CertificateDer]>) -> Option<PublicKey> {
    let [shown] = certificates? else { return None };
    let key = PublicKey::from_bytes(shown.as_ref().last_chunk()?).ok()?;
    (public_form(&key).as_ref() == shown.as_ref()).then_some(key)
}

/// The key in the form in which TLS shows it.
fn public_form(key: &PublicKey) -> SubjectPublicKeyInfoDer<'static> {
    public_key_to_spki(&ED25519, key.as_bytes())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    ring::default_provider().signature_verification_algorithms
}

/// Shows this agent's key, and signs with it.
#[derive(Debug)]
struct OwnKey(Arc<CertifiedKey>);

impl OwnKey {
    fn new(key: &SecretKey) -> Self {
        let shown = CertificateDer::from(public_form(&key.public()).to_vec());
        Self(Arc::new(CertifiedKey::new(vec![shown], Arc::new(Signature(key.clone())))))
    }
}

impl ResolvesClientCert for OwnKey {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for OwnKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// Signs with a secret key.
#[derive(Clone, Debug)]
struct Signature(SecretKey);

impl SigningKey for Signature {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(public_form(&self.0.public()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for Signature {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign(message).to_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Checks that the other end has the key that it shows, and that this is the expected one.
#[derive(Debug)]
struct Proof {
    /// Any key if none is given.
    expected: Option<PublicKey>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Proof {
    fn check(&self, shown: &CertificateDer, others: &[CertificateDer]) -> Result<(), Error> {
        let key = if others.is_empty() { key_of(Some(std::slice::from_ref(shown))) } else { None };
        match (key, self.expected) {
            (None, _) => Err(CertificateError::BadEncoding.into()),
            (Some(key), Some(expected)) if key != expected => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            (Some(_), _) => Ok(()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let shown = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &shown, signed, &self.algorithms)
    }
}

impl ServerCertVerifier for Proof {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer,
        others: &[CertificateDer],
        _: &ServerName,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Proof {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer,
        others: &[CertificateDer],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
