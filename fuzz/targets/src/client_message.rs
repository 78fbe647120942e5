//! What a client of a load tells its controller.

use rotproof_measure::load::clients::try_line;

/// Whatever it says, the controller lives.
pub fn check(data: &[u8]) {
    if let Ok(line) = std::str::from_utf8(data) {
        try_line(line);
    }
}

/// One of each message.
pub fn seeds() -> Vec<Vec<u8>> {
    let figures = r#"{"requests":2,"bytes":4096,"retries":1,"errors":[["medium",1],["errno_95",1]],"latency":[[5,1],[900,1]]}"#;
    let four = format!("[{figures},{figures},{figures},{figures}]");
    let phase = format!(
        r#"{{"phase":{{"phase":"run","operations":{four},"cool_down":[9,12,{four}],"started_ns":1,"ended_ns":99,"effort":{{"cpu_ns":5,"voluntary_context_switches":1,"involuntary_context_switches":0,"system_calls":3}},"all_requests":8,"unsupported_discards":0,"incidents":[{{"object":0,"offset_bytes":0,"length_bytes":4096,"operation":"read","error":"medium","sent_ns":6,"time_ns":7}}],"incidents_omitted":0,"hung":[{{"worker":1,"phase":"run","operation":"write","object":"device","offset_bytes":0,"length_bytes":4096,"sent_ns":3,"age_ns":8,"end":"given_up"}}],"hung_omitted":0,"is_interrupted":false}}}}"#
    );
    let found = r#"{"end":{"load":{"reads":"100%"},"size_bytes":1048576,"written_blocks":3,"failures":[{"object_index":0,"object":"device","block":7,"offset_bytes":28672,"ways":[{"phase":"check","time_ns":5,"operation":"read","expected":[{"content":"run:0:17","hash":"3ee8dc4f9e7ee49593d76fe148c689ba"}],"found":"3ee8dc4f9e7ee49593d76fe148c689ba","what":{"kind":"flipped_bits","count":1,"bits":[{"byte":0,"bit":0}]},"count":1}]}],"is_interrupted":false}}"#;
    let interval = r#"{"interval":{"worker":3,"is_cool_down":false,"index":2,"start_ns":2000000000,"end_ns":3000000000,"operations":[{"bytes":4096,"errors":1,"retries":2,"first_error_ns":17,"latency":{"buckets":[[5,1],[700,3]],"sum":500,"min":5,"max":400}},null]}}"#;
    [
        r#"{"hello":{"rotproof":"0.1.0","host":"alice"}}"#,
        r#"{"ready":{"phase":"run"}}"#,
        r#"{"progress":[[[1,4096,0],[0,0,0],[0,0,0],[0,0,0],[0,0,0]],1]}"#,
        r#"{"failed":{"kind":"missing","message":"no such disk"}}"#,
        interval,
        found,
        &phase,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_seed_is_a_message() {
        for seed in super::seeds() {
            let line = String::from_utf8(seed).expect("UTF-8");
            assert!(super::try_line(&line), "{line}");
        }
    }
}
