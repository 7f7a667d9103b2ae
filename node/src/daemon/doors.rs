//! Where the API and the page are served: on loopback, and over TLS for other machines if the owner wants that.
//!
//! Invariant: both serve the same routes; each tells them which one a call came through.

use std::{net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tracing::{info, warn};

use super::DaemonError;
use crate::{
    api::{self, ApiState, Via, tls::TlsListener},
    config::NodeConfig,
};

/// Open listeners.
pub struct Doors {
    local: TcpListener,
    remote: Option<TlsListener>,
    /// Of the local one.
    pub address: SocketAddr,
}

impl Doors {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be listened on, or certificate or key are wrong.
    pub async fn open(config: &NodeConfig) -> Result<Doors, DaemonError> {
        let failed = |source| DaemonError::Api { address: config.api, source };
        let local = TcpListener::bind(config.api).await.map_err(failed)?;
        let address = local.local_addr().map_err(failed)?;
        let remote = match &config.remote {
            Some(remote) => Some(TlsListener::open(remote.address, &remote.cert, &remote.key).await?),
            None => None,
        };
        Ok(Doors { local, remote, address })
    }

    /// Serves the API until `stopped` says so; one task a door.
    pub fn serve(self, api: &Arc<ApiState>, stopped: &watch::Receiver<bool>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_one(self.local, false, api.clone(), stopped.clone()));
        if let Some(remote) = self.remote {
            tasks.spawn(serve_one(remote, true, api.clone(), stopped.clone()));
        }
        tasks
    }
}

async fn serve_one<L>(listener: L, is_tls: bool, api: Arc<ApiState>, mut stopped: watch::Receiver<bool>)
where
    L: Listener<Addr = SocketAddr>,
{
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => {
            warn!(%error, "the API has no address");
            return;
        }
    };
    if is_tls {
        info!("the page and the API are served to other machines at https://{address}");
    }
    let router = api::router(api, Via { address, is_tls });
    let served = axum::serve(listener, router).with_graceful_shutdown(async move {
        // An error says that the node is gone already.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    });
    if let Err(error) = served.await {
        warn!(%error, "the API has stopped");
    }
}
