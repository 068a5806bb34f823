//! The autoscaler of an elastic job.

use trainyard_core::launch::{self, Object};

use super::{Actor, Trouble};
use crate::state::Scaler;

impl Actor<'_> {
    pub(super) async fn apply_autoscaler(&self) -> Result<(), Trouble> {
        let Some(autoscaler) = launch::autoscaler(self.job) else {
            return Ok(());
        };
        let spec = Box::new(autoscaler.spec.clone());
        let uid = self.make(&Object::Autoscaler(Box::new(autoscaler))).await?;
        self.state.remember(self.key, |memory| {
            memory.autoscaler = Scaler::Made { uid, spec };
        });
        Ok(())
    }

    /// Deletes the autoscaler that was found or made, and none that has its name by now.
    pub(super) async fn delete_autoscaler(&self) -> Result<(), Trouble> {
        let uid = match self.state.memory(self.key).autoscaler {
            Scaler::Found(uid) | Scaler::Made { uid, .. } => uid,
            Scaler::Unknown | Scaler::Missing => return Ok(()),
        };
        let name = self.job.name.as_str();
        self.remove_own("horizontalpodautoscalers", name, &uid)
            .await?;
        self.state
            .remember(self.key, |memory| memory.autoscaler = Scaler::Missing);
        Ok(())
    }
}
