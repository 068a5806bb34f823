//! What changes when this operator begins to lead, and when it no longer does.

use super::Operator;

impl Operator {
    /// An operator that begins to lead enqueues every job: while another led, it has forgotten what it knew.
    pub(super) async fn enqueue_all_on_taking_over(self) {
        let mut leads = self.leads();
        loop {
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            let jobs = self.state.store().job_keys();
            self.queue.enqueue_all(jobs);
            if leads.wait_for(|leads| !*leads).await.is_err() {
                return;
            }
            self.forget_what_leaders_know();
        }
    }

    /// Forgets how far jobs are, and removes their gauges: the leader reports them, and what stays here is old from now on. Forgets
    /// what it decided about nodes, too: should it lead again, another operator may have decided otherwise, and pods and nodes carry that.
    /// The same holds for the ends of containers that it reported, and for gangs that restart in place, whose leaders connect to the one that leads.
    pub(super) fn forget_what_leaders_know(&self) {
        self.reports.forget_all();
        self.events.forget_all();
        self.gangs.forget_all();
        self.state.store().fleet.forget_decisions();
        self.caller.metrics.forget_jobs();
    }
}
