//! What a client says on the control socket, in the pieces in which it arrives.

use std::time::Instant;

use rotproof_fault::{EngineOptions, Sites, UNNAMED_SITE};
use rotproof_serve::Ready;
use rotproof_serve::control::{Handler, ServedStack, Session};

/// Every line is answered by one line of JSON, and the next is listened to. The first byte says how long the pieces are.
pub fn check(data: &[u8]) {
    let Some((&piece, text)) = data.split_first() else { return };
    let mut sites = Sites::default();
    let options = EngineOptions { seed: 1, device_size: 1 << 20 };
    sites.add(UNNAMED_SITE, options).expect("the first place");
    let ready = Ready {
        name: "fuzz".into(),
        pid: 1,
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        rules: 0,
        exports: Vec::new(),
        control: "/nowhere".into(),
    };
    let mut handler = Handler::new(sites, ServedStack { ready, began: Instant::now() });
    let mut session = Session::new(&handler);
    let mut said = Vec::new();
    let mut answer = |session: &mut Session, said: &mut Vec<u8>| loop {
        said.extend_from_slice(session.output());
        session.was_sent(session.output().len());
        if !session.answer_next(&mut handler) {
            break;
        }
    };
    for bytes in text.chunks(usize::from(piece) * 16 + 1) {
        session.receive(bytes);
        answer(&mut session, &mut said);
    }
    session.end_of_input();
    answer(&mut session, &mut said);
    assert!(session.is_over());
    for line in said.split_inclusive(|&byte| byte == b'\n') {
        let reply: serde_json::Value = serde_json::from_slice(line).expect("every reply is a line of JSON");
        let keys = ["rotproof", "ok", "error"];
        assert_eq!(keys.iter().filter(|key| reply.get(key).is_some()).count(), 1, "{reply}");
    }
}

/// The requests of the documentation, one by one and all at once.
pub fn seeds() -> Vec<Vec<u8>> {
    let page = include_str!("../../../docs/control.md");
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut requests: Vec<String> =
        blocks.flat_map(str::lines).filter(|line| line.contains("\"do\"")).map(str::to_owned).collect();
    for action in ["status", "list", "release", "injections"] {
        requests.push(format!("{{\"id\":3,\"version\":1,\"do\":\"{action}\"}}"));
    }
    for action in ["resume", "remove", "release"] {
        requests.push(format!("{{\"id\":\"x\",\"do\":\"{action}\",\"rules\":[\"bad\",\"fault-1\"]}}"));
    }
    requests.push("{\"do\":\"list\",\"from\":1,\"removed\":true,\"targets\":true}".into());
    requests.push("{\"do\":\"hits\",\"from\":0,\"count\":9,\"rule\":\"bad\"}".into());
    requests.push(requests.join("\n"));
    requests.into_iter().map(|text| [b"\x07", text.as_bytes(), b"\n"].concat()).collect()
}
